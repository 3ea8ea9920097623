"""A flood by one principal, with however many connections, leaves others their turns."""

from tests.unit.doors.box import Box, frame, serve
from tests.unit.doors.policies import as_somebody, change, rules

CONNECTIONS, COMMANDS = 40, 400
ENOUGH, FEW = 5, 8


def test_a_flood_of_one_principal_waits_for_itself() -> None:
    """While one principal has 16 000 commands on 40 connections, what another asks is in one of the next entries.

    In entries, not in seconds: how long those take is the machine's that the test runs on.
    """

    async def scenario(box: Box) -> None:
        await change(
            box,
            await box.client(3),
            users={"sys": {"roles": ["root"]}, "flood": {"roles": ["all"]}, "quiet": {"roles": ["all"]}},
            roles={"root": rules(all="admin"), "all": rules(all="acquire")},
        )
        quiet = await as_somebody(box, "quiet", session=60_000)
        floods = [await as_somebody(box, "flood", session=60_000) for _ in range(CONNECTIONS)]
        for number, client in enumerate(floods):
            commands = [frame("LOCK.ACQUIRE", f"f{number}-{each}", "WAIT", 0) for each in range(COMMANDS)]
            client.writer.write(b"".join(commands))
        entries: list[int] = []
        while len(box.state.held) - len(entries) < CONNECTIONS * COMMANDS:
            before = box.state.position
            await quiet.call("LOCK.ACQUIRE", f"q{len(entries)}", "WAIT", 0)
            entries.append(box.state.position - before)
        assert len(entries) > ENOUGH, "the flood was over before anything was asked"
        # It is in the next entry that is begun, or in the one after it: the rest is what went on meanwhile.
        assert sorted(entries)[len(entries) // 2] <= FEW, entries
        for client in floods:
            for _ in range(COMMANDS):
                await client.reply()

    serve(scenario)
