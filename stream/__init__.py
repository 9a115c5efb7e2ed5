"""Streams: sources, the Beam pipelines that write their logs, and the reader that knows its place."""

from .biography import no_knowledge_level, no_knowledge_levels
from .builder import LogBuilder
from .checks import read_good
from .config import (
    BiographyOptions,
    BiographyValues,
    DriftOptions,
    GivenStatistics,
    StreamConfig,
    TeacherOptions,
)
from .describe import describe_log
from .importing import import_dataset
from .log import Log, open_log
from .reader import StreamReader
from .schema import Batch, Field, Schema, Source
from .sources import list_sources, open_source
from .standardise import Standardiser
from .tokenizer import Tokenizer, documents_of
from .writing import build_log

__all__ = [
    "Batch",
    "BiographyOptions",
    "BiographyValues",
    "DriftOptions",
    "Field",
    "GivenStatistics",
    "Log",
    "LogBuilder",
    "Schema",
    "Source",
    "Standardiser",
    "StreamConfig",
    "StreamReader",
    "TeacherOptions",
    "Tokenizer",
    "build_log",
    "describe_log",
    "documents_of",
    "import_dataset",
    "list_sources",
    "no_knowledge_level",
    "no_knowledge_levels",
    "open_log",
    "open_source",
    "read_good",
]
