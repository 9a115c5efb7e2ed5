"""The paper's experiments: one command each, our numbers beside the paper's.

    python -m benchmarks.paper list
    python -m benchmarks.paper run EXPERIMENT [--size small|full] [--data SPEC]
    python -m benchmarks.paper render

An experiment declares its cells (one line of its table each), their sizes and the paper's numbers; the sweep
runs what is not yet there, a file of results per cell and seed; pages are drawn from these files alone.
"""
