"""Command lines: flags in, one line and an exit code out.

0 done; 2 refused, the user's mistake; 3 stopped on a non-finite value; 75 asked to stop, and saved; 130 interrupted
at once from the keyboard. Anything else is a bug and shows its traceback.
"""

import argparse
import difflib
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from data.errors import DataError, said
from training.errors import ConfigError, NonFiniteError, PreemptedError

DONE, REFUSED, NOT_FINITE, PREEMPTED, INTERRUPTED = 0, 2, 3, 75, 130


def parse(argv: Sequence[str], values: flags.FlagValues = flags.FLAGS) -> None:
    """Reads absl flags and the config into `values`. Raises ConfigError, one line, for whatever is wrong with them.

    Raises SystemExit after --help.
    """
    if "--help" in argv:
        print(sys.modules["__main__"].__doc__, values.main_module_help(), sep="\n")
        raise SystemExit(DONE)
    given = _config_argument(argv)
    # config_flags would say that a file is missing only when its config is first used, in five lines.
    if given is not None and not Path(given.split(":", 1)[0]).is_file():
        raise ConfigError(f"--config: there is no file {given.split(':', 1)[0]!r}")
    try:
        rest = values(argv)
    except flags.Error as error:
        raise ConfigError(_own_line(error)) from error
    except (AttributeError, IndexError, KeyError) as error:
        unknown = _unknown_override(argv, given or "", values)
        raise ConfigError(unknown or f"--config={given}: {_own_line(error)}") from error
    except (ImportError, SyntaxError, TypeError, ValueError) as error:
        # config_flags lets the errors of ConfigDict and of the config file itself through as they are.
        raise ConfigError(f"--config={given}: {_own_line(error)}") from error
    except Exception as error:
        raise ConfigError(f"--config={given}: {type(error).__name__}: {_own_line(error)}") from error
    if len(rest) > 1:
        raise ConfigError(f"unexpected argument {rest[1]!r}: flags are written --name=value")


def _config_argument(argv: Sequence[str]) -> str | None:
    """The value of the last --config=value or --config value."""
    value = None
    for argument, following in zip(argv, [*argv[1:], None], strict=True):
        if found := re.fullmatch("--?config(=(.*))?", argument):
            value = found[2] if found[1] else following
    return value


def _own_line(error: BaseException) -> str:
    """One line of an error. What a config file raised comes with its traceback as text, which ends with that line."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if "Error whilst parsing config file" in str(error):
        return re.sub(r"^\w+: ", "", lines[-1])
    return lines[0]


def _unknown_override(argv: Sequence[str], given: str, values: flags.FlagValues) -> str | None:
    """Names the first --config.a.b whose key the config has not: ConfigDict says only the last part of it."""
    try:
        config: Any = values["config"].parser.parse(given)
    except (AttributeError, IndexError, KeyError):
        return None  # the file itself is at fault
    for argument in argv:
        if not (found := re.match(r"--?(?:no)?config\.([^=]+)", argument)):
            continue
        group, path = config, "config"
        for name in found[1].split("."):
            if not hasattr(group, "keys"):
                return f"{path} has no keys of its own, got --config.{found[1]}"
            if name not in group:
                near = difflib.get_close_matches(name, group, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(group)}"
                return f"unknown key {path}.{name}: {hint}"
            group, path = group[name], f"{path}.{name}"
    return None


def guarded(main: Callable[[Sequence[str]], None], argv: Sequence[str]) -> int:
    """Runs `main` and turns what it refuses or stops on into one line on stderr and an exit code."""
    signal.signal(signal.SIGINT, _interrupted)
    try:
        main(argv)
    except (ConfigError, DataError, argparse.ArgumentTypeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    except BrokenPipeError:
        # Whoever read the output has enough. Python would flush once more at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        # A folder that may not be read or written, a full disk: nothing in the code can mend it.
        where = f"{error.filename}: " if error.filename else ""
        print(f"error: {said(f'{where}{error.strerror or error}')}", file=sys.stderr)
        return REFUSED
    except NonFiniteError as error:
        print(f"stopped: {error}", file=sys.stderr)
        return NOT_FINITE
    except PreemptedError as error:
        print(error, file=sys.stderr)
        return PREEMPTED
    return DONE


def _interrupted(*_: object) -> None:
    """Ends the process on the spot, which a run survives like any other kill.

    A KeyboardInterrupt would surface as another error in some imports, and leave the threads of XLA and orbax at work:
    they print tracebacks, or crash, while the interpreter shuts down.
    """
    os.write(2, b"interrupted: the same command goes on where this one stopped\n")
    os._exit(INTERRUPTED)


def asked_to_stop() -> Callable[[], bool]:
    """Whether SIGTERM or SIGUSR1 has come, by which a scheduler says that the time is over, or Control-C. From now on
    they no longer end the process: that is left to whoever asks. A second Control-C ends it on the spot."""
    came = threading.Event()

    def once(*_: object) -> None:
        signal.signal(signal.SIGINT, _interrupted)
        os.write(2, b"stopping after the step in progress; Control-C again stops at once\n")
        came.set()

    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda *_: came.set())
    signal.signal(signal.SIGINT, once)
    return came.is_set


def require(values: flags.FlagValues, *names: str) -> None:
    """Raises ConfigError for the first flag that was not given."""
    for name in names:
        if not values[name].value:
            raise ConfigError(f"--{name} is missing")


def folder(given: str) -> Path:
    """A path, with ~ for the home folder: no shell expands it behind an equals sign.

    Raises:
      argparse.ArgumentTypeError: nothing was given, as by an unset variable; it would mean the folder at hand.
    """
    if not given:
        raise argparse.ArgumentTypeError("a path is missing")
    try:
        given.encode()
        return Path(given).expanduser()
    except (UnicodeEncodeError, RuntimeError) as error:  # RuntimeError: ~somebody, who has no home
        raise argparse.ArgumentTypeError(f"{given!a} is no path: {said(str(error))}") from error


def data_dir(given: str | None) -> Path:
    """The folder of prepared data: the flag, else the default."""
    from data.folders import default_data_dir

    return folder(given) if given else default_data_dir()
