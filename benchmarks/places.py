"""Where the benchmarks keep what they make. All of it is ignored by git, and deleting it is harmless."""

from pathlib import Path

BENCHMARKS = Path(__file__).parent
ROOT = BENCHMARKS.parent
#: The peers' virtual environment and Node packages, and the compiled reference client.
BUILD_DIR = BENCHMARKS / ".env"
PEER_PYTHON = BUILD_DIR / "venv" / "bin" / "python"
NODE_MODULES = BUILD_DIR / "node_modules"
RESULTS_DIR = BENCHMARKS / "results"
