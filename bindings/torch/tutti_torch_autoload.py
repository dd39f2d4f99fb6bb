"""What `import torch` calls, by the entry point torch.backends."""
import warnings


def load():
    """Register the back end. Where that fails, torch can still be used without it."""
    try:
        import tutti_torch  # noqa: F401
    except Exception as error:
        warnings.warn(str(error), stacklevel=2)
