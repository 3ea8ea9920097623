"""A poll: when it ends, and whom it still asks after that."""

import asyncio
from typing import Any, cast

import pytest

from fencehold.backends.redlock.quorum import QuorumPoll, QuorumQuestion
from fencehold.drivers.resp.client import RespClient, Script
from fencehold.drivers.resp.failures import Refusal, unanswered
from fencehold.errors import Unavailable

QUESTION = QuorumQuestion(Script("return 1"), ("n",))
NOSCRIPT = Refusal("NOSCRIPT No matching script. Please use EVAL.")
LOST = unanswered("127.0.0.1:1", "it closed the connection")


class Node:
    """A Redis that answers when it is told to; what is run over its link afterwards is answered with 1."""

    server = "127.0.0.1:1"

    def __init__(self) -> None:
        self.connection = self
        self.asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.ran = 0
        self.said = b""
        self.is_new = False

    def is_new_to(self, script: str) -> bool:
        return self.is_new

    def send(self, command: bytes) -> "asyncio.Future[Any]":
        self.said = command
        return self.asked

    async def run(self, *_: object) -> int:
        self.ran += 1
        return 1


def of(nodes: list[Node]) -> list[RespClient]:
    return cast(list[RespClient], nodes)


def is_most(answers: list[Any]) -> bool:
    return answers.count(1) >= 2


async def asked_again(reply: object, late: "set[asyncio.Task[None]] | None" = None) -> list[int]:
    """How often each was asked again, if the third replies so when the two others have decided it."""
    nodes = [Node() for _ in range(3)]
    poll = QuorumPoll(of(nodes), QUESTION, is_most, late)
    for node in nodes[:2]:
        node.asked.set_result(1)
    assert (await poll.result(10)).yes() == 2
    nodes[2].asked.set_result(reply)
    for _ in range(5):
        await asyncio.sleep(0)
    return [node.ran for node in nodes]


@pytest.mark.parametrize("reply", [NOSCRIPT, LOST])
def test_who_did_not_hear_what_all_are_to_hear_is_asked_again_though_it_is_decided(reply: object) -> None:
    """A key that is to be free everywhere must not stay with one that was slow to say that it knows no script."""
    late = set[asyncio.Task[None]]()
    assert asyncio.run(asked_again(reply, late)) == [0, 0, 1]
    assert late == set()


@pytest.mark.parametrize("reply", [NOSCRIPT, LOST])
def test_who_is_late_with_another_question_is_left_alone(reply: object) -> None:
    """What is decided is not asked of anybody any more: it could take a name that nobody wants."""
    assert asyncio.run(asked_again(reply)) == [0, 0, 0]


def test_who_knows_no_script_is_sent_it_and_counts() -> None:
    """Before it is decided, whatever is asked."""

    async def scenario() -> None:
        nodes = [Node() for _ in range(3)]
        poll = QuorumPoll(of(nodes), QUESTION, is_most)
        for node in nodes[1:]:
            node.asked.set_result(NOSCRIPT)
        votes = await poll.result(10)
        assert votes.yes() == 2
        assert [node.ran for node in nodes] == [0, 1, 1]

    asyncio.run(scenario())


def test_over_a_new_line_a_script_is_sent_whole() -> None:
    """One that would first say that it knows no script is asked in vain if it is decided meanwhile."""

    async def scenario() -> None:
        nodes = [Node() for _ in range(3)]
        nodes[0].is_new = True
        QuorumPoll(of(nodes), QUESTION, is_most)
        assert [b"EVALSHA" in node.said for node in nodes] == [False, True, True]
        assert QUESTION.script.source.encode() in nodes[0].said

    asyncio.run(scenario())


def test_without_an_answer_it_is_not_known() -> None:
    """Who was asked and said nothing in time may have done it."""

    async def scenario() -> None:
        nodes = [Node() for _ in range(3)]
        poll = QuorumPoll(of(nodes), QUESTION, is_most)
        nodes[0].asked.set_result(1)
        nodes[1].asked.set_result(LOST)
        votes = await poll.result(0.01)
        assert (votes.answers, votes.absent, votes.unknown) == ([1], 0, 2)

    asyncio.run(scenario())


def test_a_link_that_is_closed_has_nobody_wait_for_it() -> None:
    """Who is asked again when the client is closed finds out at once."""

    async def scenario() -> None:
        async def never() -> Any:
            await asyncio.Event().wait()

        link = RespClient(never, "127.0.0.1:1")
        link.start()
        await link.close()
        with pytest.raises(Unavailable):
            await asyncio.wait_for(link.run(*QUESTION), 10)

    asyncio.run(scenario())
