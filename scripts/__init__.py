"""Commands beside train.py and eval.py, run as modules: python -m scripts.NAME."""
