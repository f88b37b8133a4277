"""Command lines: flags in, one line and an exit code out.

0 done; 2 refused, the user's mistake; 3 stopped on a non-finite value. Anything else is a bug and shows its traceback.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import flags

from data.errors import DataError
from training.errors import ConfigError, NonFiniteError

DONE, REFUSED, NOT_FINITE = 0, 2, 3


def parse(argv: Sequence[str]) -> None:
    """Reads absl flags and the config. Raises ConfigError, one line, for whatever is wrong with them."""
    try:
        rest = flags.FLAGS(argv)
    except flags.Error as error:
        raise ConfigError(_first_line(error)) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # config_flags lets the errors of ConfigDict and of the config file's own checks through as they are.
        raise ConfigError(f"config: {_first_line(error)}") from error
    except (ImportError, FileNotFoundError) as error:
        raise ConfigError(f"config: cannot load the file: {_first_line(error)}") from error
    if len(rest) > 1:
        raise ConfigError(f"unexpected argument {rest[1]!r}: flags are written --name=value")


def _first_line(error: BaseException) -> str:
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__


def guarded(main: Callable[[Sequence[str]], None], argv: Sequence[str]) -> int:
    """Runs `main` and turns what it refuses or stops on into one line on stderr and an exit code."""
    try:
        main(argv)
    except (ConfigError, DataError) as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    except NonFiniteError as error:
        print(f"stopped: {error}", file=sys.stderr)
        return NOT_FINITE
    return DONE


def require(values: flags.FlagValues, *names: str) -> None:
    """Raises ConfigError for the first flag that was not given."""
    for name in names:
        if values[name].value is None:
            raise ConfigError(f"--{name} is missing")


def data_dir(given: str | None) -> Path:
    """The folder of prepared data: the flag, else the default."""
    from data.store import default_data_dir

    return Path(given) if given else default_data_dir()
