"""Metrics declared once, the recorder and its sinks, and the read-only views of a run's folder."""

from .dashboard import Dashboard
from .exporter import PrometheusExporter
from .inspect import inspect_run
from .inspection_text import format_inspection, format_summary
from .live import Facts
from .metrics import METRICS, Metric
from .plateau import Plateau, PowerLaw, find_plateau, fit_power_law, loss_curve
from .predictions import PredictionLog, read_predictions
from .progress import ProgressLine
from .push import PushGateway
from .recorder import Dropped, Recorder
from .recovery import AccuracyCurve, Recovery, accuracy_curve
from .report import write_comparison, write_report
from .rows import EvaluationRow, LayerRow, StepRow, reproducible
from .run_view import RunState, RunView
from .sink import Distribution, Sample, Sink
from .summary import Summary, installed_versions, read_summary, write_summary
from .table import DroppedRows, TableWriter, read_table
from .target_file import TargetFile

__all__ = [
    "METRICS",
    "AccuracyCurve",
    "Dashboard",
    "Distribution",
    "Dropped",
    "DroppedRows",
    "EvaluationRow",
    "Facts",
    "LayerRow",
    "Metric",
    "Plateau",
    "PowerLaw",
    "PredictionLog",
    "ProgressLine",
    "PrometheusExporter",
    "PushGateway",
    "Recorder",
    "Recovery",
    "RunState",
    "RunView",
    "Sample",
    "Sink",
    "StepRow",
    "Summary",
    "TableWriter",
    "TargetFile",
    "accuracy_curve",
    "find_plateau",
    "fit_power_law",
    "format_inspection",
    "format_summary",
    "inspect_run",
    "installed_versions",
    "loss_curve",
    "read_predictions",
    "read_summary",
    "read_table",
    "reproducible",
    "write_comparison",
    "write_report",
    "write_summary",
]
