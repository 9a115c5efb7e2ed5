"""The biography data: people, their attributes, and sentences about them (Zucchet et al., 2025)."""

from .levels import no_knowledge_level, no_knowledge_levels
from .population import Population, draw_population
from .templates import ATTRIBUTES

__all__ = ["ATTRIBUTES", "Population", "draw_population", "no_knowledge_level", "no_knowledge_levels"]
