"""Settings of the study's tests, which start the programs of this checkout too."""

import os
from pathlib import Path

from posenc_jax.runtime import backend

ROOT = str(Path(__file__).parent.parent)
os.environ["PYTHONPATH"] = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
backend.configure()
