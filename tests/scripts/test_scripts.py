"""Runs every scripted conversation; with ``--rewrite``, writes down what the machine says now."""

from pathlib import Path

import pytest

from tests.scripts.conversation import Conversation

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))
RULE = "----"


def replay(text: str) -> str:
    """The script with what the machine says now in the place of what it is expected to say."""
    conversation = Conversation()
    blocks = text.strip().split("\n\n")
    return "\n\n".join(_replay_block(conversation, block) for block in blocks) + "\n"


def _replay_block(conversation: Conversation, block: str) -> str:
    asked = block.split(f"\n{RULE}", maxsplit=1)[0]
    lines = [line for line in asked.splitlines() if line and not line.startswith("#")]
    if not lines:
        return asked
    said = [word for line in lines for word in conversation.say(line)]
    return "\n".join([asked, RULE, *said])


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_machine_answers_as_the_script_says(path: Path, request: pytest.FixtureRequest) -> None:
    """What a script says the machine does is what it does."""
    text = path.read_text()
    now = replay(text)
    if request.config.getoption("--rewrite"):
        path.write_text(now)
    assert now == text or request.config.getoption("--rewrite")


def test_there_are_scripts_and_each_expects_something() -> None:
    """No script passes by being empty."""
    assert len(SCRIPTS) >= 30
    assert all(path.read_text().count(f"\n{RULE}\n") >= 1 for path in SCRIPTS)
