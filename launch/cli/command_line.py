"""The ``gavel`` command: reads the command line, composes the config, runs the verb, and turns errors into exit codes.

Nothing heavy is imported before a verb runs, so that help is there at once.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gavel.launch.compose.verbs import Verb, find_verb
from gavel.models.errors import ConfigError, Findings, GavelError, InputError, NextCommand, find_nearest, make_visible

if TYPE_CHECKING:
    from rich.console import Console

OK, INTERNAL, BAD_INPUT, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 130, 141
_HELP = ("-h", "--help", "help")
_NO_HOME = "Could not determine home directory."
"""What ``Path.expanduser`` says."""
_MULTIRUN = ("-m", "--multirun")
_KEY = re.compile(r"\+{0,2}[A-Za-z_][\w.@]*")
_HYDRA = frozenset(
    (
        "--cfg",
        "-c",
        "--info",
        "-i",
        "--resolve",
        "--package",
        "-p",
        "--run",
        "-r",
        "--hydra-help",
        "--config-name",
        "-cn",
    )
)
_HYDRA_WORDS = (
    "Hydra's own flags are not taken; `gavel VERB --help` lists keys and groups, dry_run=true says what would be "
    "done, and the "
    "whole config of a run is in its config.yaml"
)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command line, read: ``runs`` are the words after the verb that stand alone."""

    verb: str | None = None
    runs: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    config_dirs: tuple[str, ...] = ()
    help: bool = False
    version: bool = False
    traceback: bool = False
    multirun: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code (see ``gavel --help``)."""
    from gavel.launch.runs.signals import ignore_signals, interrupt_by_signals

    words = list(sys.argv[1:] if argv is None else argv)
    _reopen_descriptors()
    _accept_narrow_encodings()
    try:
        with interrupt_by_signals():
            code = _run_guarded(words)
            if argv is None:  # a process that is about to end: a late signal must not change its code
                ignore_signals()
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has gone (`gavel | head`); Python would complain again when it closes the stream at
        # exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return code


def parse_words(words: Sequence[str]) -> CommandLine:
    """Read a command line.

    Raises:
        ConfigError: an option that does not exist or lacks its value.
    """
    options: dict[str, bool] = {}
    plain: list[str] = []
    folders: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name == "--config-dir":
            folders.append(value if equals else _take_value(rest, name))
        elif word in _HELP[:2] or (word == "help" and not plain):
            options["help"] = True
        elif word in _MULTIRUN:
            options["multirun"] = True
        elif word in ("--version", "--traceback"):
            options[word[2:]] = True
        elif word.startswith("-"):
            raise _make_unknown_option(word)
        else:
            plain.append(word)
    verb, others = (plain[0] if plain else None), plain[1:]
    count = next((place for place, word in enumerate(others) if not _is_standalone(word, verb)), len(others))
    return CommandLine(verb, tuple(others[:count]), tuple(others[count:]), tuple(folders), **options)


def _is_standalone(word: str, verb: str | None) -> bool:
    """Whether a word is no override: without ``=``, or the path of something that is there and no key (``000-seed=1``,
    ``a=b``).
    """
    if word.startswith("~"):
        return False
    key, equals, _ = word.partition("=")
    return not equals or (os.path.lexists(word) and (_KEY.fullmatch(key) is None or not _is_key(key, verb)))


def _is_key(key: str, verb: str | None) -> bool:
    from gavel.launch.compose.compose import has_key

    return verb is None or has_key(verb, key.lstrip("+"))


def _take_value(rest: Iterator[str], option: str) -> str:
    value = next(rest, None)
    if value is None:
        raise ConfigError("this option needs a value", field=option, remedy=f"write {option} DIR")
    return value


def _make_unknown_option(word: str) -> ConfigError:
    known = ("--help", "--version", "--config-dir", "--traceback", "-m")
    name, equals, value = word.lstrip("-").partition("=")
    flag = word.partition("=")[0]
    if flag in _HYDRA:
        return ConfigError("there is no such option", found=word, allowed=", ".join(known), remedy=_HYDRA_WORDS)
    near = find_nearest(flag, known)
    key = name.replace("-", "_")
    remedy = (
        f"did you mean {near[0]}?"
        if near
        else f"config keys have no dashes before them: {key}={value if equals else 'true'}"
    )
    return ConfigError("there is no such option", found=word, allowed=", ".join(known), remedy=remedy)


def _run_guarded(words: list[str]) -> int:
    """The boundary where every exception ends: errors for the user become one screen, the rest a message and a trace in
    a file.
    """
    try:
        _check_encoding(words)
        return _dispatch_line(parse_words(words))
    except GavelError as failed:
        return _write_error(str(_spell_remedies(failed, words)), failed.exit_code)
    except KeyboardInterrupt:
        return _write_error("interrupted", INTERRUPTED)
    except BrokenPipeError:
        raise
    except OSError as failed:
        return _report_os_error(failed) if failed.errno and "--traceback" not in words else _report_bug(failed, words)
    except UnicodeEncodeError as failed:
        return (
            _report_bug(failed, words)
            if _is_utf8() or "--traceback" in words
            else _write_error(str(_make_no_utf8()), BAD_INPUT)
        )
    except RuntimeError as failed:
        homeless = str(failed) == _NO_HOME and "--traceback" not in words
        return _write_error(str(_make_no_home()), BAD_INPUT) if homeless else _report_bug(failed, words)
    except Exception as failed:  # noqa: BLE001 - the outermost boundary: a person gets a message, the trace goes to a file
        return _report_bug(failed, words)


def _spell_remedies(failed: GavelError, words: list[str]) -> GavelError:
    """Put the commands to run next, in the words of this one, into an error that tells any."""
    found = failed.findings if isinstance(failed, Findings) else (failed,)
    if not any(isinstance(one, InputError) and isinstance(one.remedy, NextCommand) for one in found):
        return failed
    from gavel.launch.compose.next_command import FailedCommand

    line = parse_words(words)
    return FailedCommand(str(line.verb), line.overrides, line.config_dirs, line.runs).spell_remedies(failed)


def _make_no_home() -> ConfigError:
    return ConfigError(
        "a path begins with ~, and there is no such home",
        allowed="~ or ~NAME of a user here",
        remedy="write the whole path",
    )


def _dispatch_line(line: CommandLine) -> int:
    if line.version:
        import gavel

        return _write_out(f"gavel {gavel.__version__}\n")
    if line.verb is None:
        from gavel.launch.cli.help import render_overview

        return _write_out(render_overview())
    verb = find_verb(line.verb)
    if line.help:
        return _write_out(_render_verb_help(verb, line.config_dirs))
    if line.multirun:
        from gavel.launch.training.sweep.run import run

        return run(verb.name, line.overrides, line.config_dirs, line.runs, _make_console())
    overrides = line.overrides
    if any(word.startswith(("cluster=", "shards=")) for word in overrides):
        from gavel.launch.training.verb_jobs import drop_places, is_handed_over, submit_verb

        if is_handed_over(verb.name, overrides):
            return submit_verb(verb.name, overrides, line.config_dirs, line.runs, _make_console())
        overrides = drop_places(verb.name, overrides)
    from gavel.launch.compose.compose import compose_config

    config = compose_config(verb.name, overrides, line.config_dirs, line.runs)
    try:
        return int(importlib.import_module(verb.module).run(config, _make_console()))
    except OSError as failed:
        if line.traceback or isinstance(failed, BrokenPipeError) or not failed.errno:
            raise
        return _report_os_error(failed, config)


def _render_verb_help(verb: Verb, config_dirs: Sequence[str]) -> str:
    from gavel.launch.cli.help import render_verb_help
    from gavel.launch.config.groups import search_path

    return render_verb_help(verb, search_path(config_dirs))


def _make_console() -> Console:
    from gavel.launch.config.console import make_console

    return make_console(terminal=sys.stdout.isatty())


def _write_out(text: str) -> int:
    sys.stdout.write(text)
    return OK


def _write_error(text: str, code: int) -> int:
    sys.stdout.flush()
    sys.stderr.write(make_visible(f"gavel: {text}\n"))
    return code


def _report_os_error(failed: OSError, config: object = None) -> int:
    """Say what the operating system refused: a full disk, a folder that may not be written."""
    from gavel.launch.config.os_errors import explain_os_error
    from gavel.models.codec import to_plain

    return _write_error(str(explain_os_error(failed, None if config is None else to_plain(config))), BAD_INPUT)


def _check_encoding(words: Sequence[str]) -> None:
    """Refuse words that no config can hold.

    Raises:
        ConfigError: a word is no UTF-8, or the locale is none and a word goes beyond ASCII.
    """
    for word in words:
        if word.isascii():
            continue
        if not _is_utf8():
            raise _make_no_utf8()
        if any("\udc80" <= character <= "\udcff" for character in word):
            raise ConfigError(
                "this word is not UTF-8",
                found=os.fsencode(word).decode("utf-8", "backslashreplace"),
                allowed="UTF-8",
                remedy="rename the file or folder, or give it a name of UTF-8 by a symbolic link",
            )


def _is_utf8() -> bool:
    return sys.getfilesystemencoding().replace("-", "").lower() == "utf8"


def _make_no_utf8() -> ConfigError:
    return ConfigError(
        "this locale cannot hold a name beyond ASCII",
        found=f"the file system's encoding is {sys.getfilesystemencoding()}",
        allowed="UTF-8",
        remedy="export PYTHONUTF8=1, or a locale of UTF-8 such as LC_ALL=C.UTF-8",
    )


def _report_bug(failed: Exception, words: Sequence[str]) -> int:
    import traceback

    trace = "".join(traceback.format_exception(failed))
    if "--traceback" in words:
        return _write_error(trace, INTERNAL)
    return _write_error(f"internal error: {type(failed).__name__}: {failed}\n  trace:   {_keep_trace(trace)}", INTERNAL)


def _keep_trace(trace: str) -> str:
    import tempfile

    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="gavel-", suffix=".trace.txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(trace)
            return file.name
    except OSError:
        return "run again with --traceback to see it"


def _reopen_descriptors() -> None:
    """Give the first three descriptors something to be where the caller closed them (``<&-``): the event loop, files
    and children would take them for their own."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free, which is this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as the process lives
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _accept_narrow_encodings() -> None:
    """Let a terminal that cannot show a character show `?` for it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
