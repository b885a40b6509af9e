"""The packages that the laboratory needs beyond the library: posenc-jax[lab]."""

LAB = (
    "absl",
    "datasets",
    "matplotlib",
    "ml_collections",
    "optax",
    "orbax",
    "pandas",
    "tokenizers",
    "tqdm",
    "wandb",
)


def missing(error: ModuleNotFoundError) -> str | None:
    """What to do where a package of the laboratory is not installed; None for other modules."""
    package = (error.name or "").partition(".")[0]
    if package not in LAB:
        return None
    return f"training and evaluation need {package}: pip install 'posenc-jax[lab]'"
