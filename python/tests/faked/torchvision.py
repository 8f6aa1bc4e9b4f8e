"""No torchvision: the real one is none of the faked torch."""

raise ImportError("torchvision is not faked")
