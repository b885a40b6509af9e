"""The packages that the laboratory needs beyond the library: posenc-jax[lab] and [lm_eval]."""

LAB = (
    "absl",
    "datasets",
    "matplotlib",
    "ml_collections",
    "optax",
    "orbax",
    "pandas",
    "pyarrow",
    "rich",
    "safetensors",
    "tokenizers",
    "tqdm",
    "wandb",
)


def missing(error: ModuleNotFoundError) -> str | None:
    """Advice to install a missing package of the laboratory; None for other modules."""
    package = (error.name or "").partition(".")[0]
    if package == "lm_eval":
        return "lm-evaluation-harness is not installed: .venv/bin/pip install -e '.[lm_eval]'"
    if package not in LAB:
        return None
    return f"training and evaluation need {package}: .venv/bin/pip install -e '.[lab]'"
