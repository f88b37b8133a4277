"""The model around the layers: registry, block, stack, classification head, `build_model`."""
