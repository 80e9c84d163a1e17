"""`walstore completion`: what a shell has to know to complete commands.

- The shell asks `walstore completion --words …` whenever somebody presses the key, so that the
  names of documents, and of what is in them, are those of now. What can be asked for comes from
  the parsers of the commands: there is no second list.
- Whatever goes wrong meanwhile completes nothing, and says nothing.
"""

from __future__ import annotations

import re
import sys
from argparse import Action, ArgumentParser
from collections.abc import Iterable, Sequence
from importlib import import_module

from walstore.cli.arguments import command_parser, parsed
from walstore.cli.documents import document_names
from walstore.cli.main import COMMANDS
from walstore.errors import WalStoreError

# A shell puts a word on the command line as it is, and a name may come from somebody else.
_HARMLESS = re.compile(r"[A-Za-z0-9_./+@:=,~-]+")

_BASH = """\
_walstore() {
    local word
    COMPREPLY=()
    while IFS= read -r word; do COMPREPLY+=("$word"); done < <(
        walstore completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null
    )
}
complete -o default -F _walstore walstore
"""

_ZSH = """\
#compdef walstore
_walstore() {
    local -a found
    found=( ${(f)"$(walstore completion --words "${(@)words[2,CURRENT]}" 2>/dev/null)"} )
    if (( $#found )); then compadd -a found; else _files; fi
}
if (( ! $+functions[compdef] )); then autoload -U compinit && compinit -i; fi
compdef _walstore walstore
"""

_FISH = """\
function __walstore
    set --local words (commandline --tokenize --cut-at-cursor) (commandline --current-token)
    set --local found (walstore completion --words $words[2..] 2>/dev/null)
    if count $found >/dev/null
        string join \\n -- $found
    else
        __fish_complete_path (commandline --current-token)
    end
end
complete --command walstore --no-files --arguments '(__walstore)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

_HINT = """\
bash:  echo 'eval "$(walstore completion bash)"' >> ~/.bashrc
zsh:   echo 'eval "$(walstore completion zsh)"' >> ~/.zshrc
fish:  walstore completion fish > ~/.config/fish/completions/walstore.fish"""


def parser() -> ArgumentParser:
    """What `walstore completion` takes."""
    made = command_parser(
        "completion",
        "Print what lets a shell complete commands, options, documents and their names.",
        epilog="To have it at every start: bash and zsh evaluate the script in their start-up"
        " file, fish has it in ~/.config/fish/completions/walstore.fish.",
        has_json=False,
    )
    made.add_argument("shell", nargs="?", choices=tuple(SCRIPTS), help="the shell")
    return made


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore completion …`; the exit code."""
    if arguments[:1] == ["--words"]:
        # Not for a parser: what was typed so far may look like an option.
        for each in candidates(arguments[1:]):
            print(each)
        return 0
    made = parser()
    flags = parsed(made, arguments)
    if flags.shell is None:
        made.error("say for which shell: bash, zsh or fish")
    print(SCRIPTS[flags.shell], end="")
    if sys.stdout.isatty():
        print(f"\n{_HINT}", file=sys.stderr)
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """What the last of some words, all those after `walstore`, may become."""
    last = words[-1] if words else ""
    try:
        found = list(COMMANDS) if len(words) <= 1 else _of_command(words[0], words[1:-1], last)
        return [each for each in found if each.startswith(last) and _HARMLESS.fullmatch(each)]
    except (WalStoreError, OSError, ImportError):
        return []


def _of_command(command: str, before: Sequence[str], last: str) -> Iterable[str]:
    if command not in COMMANDS:
        return []
    module = import_module(COMMANDS[command].module)
    made = getattr(module, "parser", None)
    words: Iterable[str] = getattr(module, "WORDS", ())
    if before and before[0] in words and hasattr(module, "parser_of"):
        return _of_parser(module.parser_of(before[0]), before[1:], last)
    if made is None:
        return [] if before else words
    return [*([] if before else words), *_of_parser(made(), before, last)]


def _of_parser(made: ArgumentParser, before: Sequence[str], last: str) -> Iterable[str]:
    # How argparse keeps its arguments has not changed since it exists, and nothing else tells.
    actions: list[Action] = made._actions
    by_option = {option: action for action in actions for option in action.option_strings}
    if last.startswith("-"):
        return [option for option in by_option if option.startswith("--")]
    positionals = [action for action in actions if not action.option_strings]
    given: list[str] = []
    asked: Action | None = None
    for word in before:
        if asked is not None:
            asked = None
        elif word in by_option:
            action = by_option[word]
            asked = action if action.nargs != 0 else None
        else:
            given.append(word)
    if asked is None:
        asked = positionals[len(given)] if len(given) < len(positionals) else None
    return [] if asked is None else _of_action(asked, given)


def _of_action(action: Action, given: Sequence[str]) -> Iterable[str]:
    if action.choices is not None:
        return list(action.choices)
    match action.dest:
        case "document" | "target":
            return document_names()
        case "identity" | "place" | "before" | "after" | "at" as dest:
            # To look into documents takes most of the library; commands and options do without.
            found: list[str] = import_module("walstore.cli.completing").names_for(dest, given)
            return found
        case _:
            return []
