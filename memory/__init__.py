"""The growing key-value memory: kernels, the database, retrieval, policies and the store."""

from .coefficients import Clock
from .database import COUNTERS, Block, Database, Rows, empty_database
from .kernels import RBF, Kernel, Linear, Pairs, WeightedSoftmax
from .nearest import nearest_square_distances
from .policies import ADMISSIONS, EVICTIONS, MemoryConfig, Occupancy, append, prune
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
    "Generation",
    "Head",
    "Kernel",
    "Linear",
    "MemoryConfig",
    "Occupancy",
    "Pairs",
    "Rows",
    "Store",
    "Table",
    "TableChange",
    "WeightedSoftmax",
    "append",
    "empty_database",
    "nearest_square_distances",
    "prune",
    "retrieve",
]
