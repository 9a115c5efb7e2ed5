"""The growing key-value memory: kernels, the database, retrieval, policies and the store."""

from .admission import Decision, decide
from .append import Occupancy, append
from .coefficients import Clock
from .database import COUNTERS, Block, Database, Rows, empty_database
from .kernels import RBF, Kernel, Linear, Pairs, WeightedSoftmax
from .neighbours import Neighbours, nearest
from .policy import ADMISSIONS, EVICTIONS, MemoryConfig
from .pruning import forget, prune
from .retrieval import retrieve
from .scores import Coefficients
from .store import Generation, Head, Store, Table, TableChange

__all__ = [
    "ADMISSIONS",
    "COUNTERS",
    "EVICTIONS",
    "RBF",
    "Block",
    "Clock",
    "Coefficients",
    "Database",
    "Decision",
    "Generation",
    "Head",
    "Kernel",
    "Linear",
    "MemoryConfig",
    "Neighbours",
    "Occupancy",
    "Pairs",
    "Rows",
    "Store",
    "Table",
    "TableChange",
    "WeightedSoftmax",
    "append",
    "decide",
    "empty_database",
    "forget",
    "nearest",
    "prune",
    "retrieve",
]
