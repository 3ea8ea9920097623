"""The page of the SDK says what the SDK is: every public name, and signatures as they are.

With ``--rewrite``, the blocks marked `signatures` are written anew from the source.
"""

import inspect
import re

import pytest

import fencehold
from tests.docs.pages import ROOT, blocks, prose, spans
from tests.docs.signatures import CHOICES, PAIRS, RECORDS, members, text_of

PAGE = ROOT / "docs/reference/sdk.md"
MARKED = re.compile(r"(<!-- signatures: (\w+) -->\n\n```text\n)(.*?)(```\n)", re.DOTALL)


def hidden() -> set[str]:
    """Members that the page says are not for applications."""
    section = PAGE.read_text().partition("## Not for applications\n")[2]
    return set(re.findall(r"`(\w+\.\w+)`", section))


def rewritten(page: str, not_shown: set[str]) -> str:
    return MARKED.sub(lambda found: found[1] + text_of(found[2], not_shown) + found[4], page)


def test_signatures_are_as_they_are(request: pytest.FixtureRequest) -> None:
    """Parameters, defaults and results on the page are those of the source, in both flavours."""
    page = PAGE.read_text()
    now = rewritten(page, hidden())
    if request.config.getoption("--rewrite"):
        PAGE.write_text(now)
    assert now == page or request.config.getoption("--rewrite")


def test_everything_has_its_block_of_signatures() -> None:
    """No class of the SDK is left out."""
    shown = [block.marks["signatures"] for block in blocks(PAGE) if "signatures" in block.marks]
    assert sorted(shown) == sorted(["connect", *CHOICES, *PAIRS, *RECORDS])


@pytest.mark.parametrize("module", ["fencehold", "fencehold.aio"])
def test_every_public_name_is_on_the_page(module: str) -> None:
    """Whatever can be imported can be looked up."""
    names = fencehold.__all__ if module == "fencehold" else fencehold.aio.__all__
    words = {word for span in spans(PAGE) for word in re.findall(r"\w+", span)}
    assert [name for name in names if name not in words] == []


@pytest.mark.parametrize("name", ["Client", "Lock", "Hold", "Claim", "Loss", "Election"])
@pytest.mark.parametrize("flavour", [0, 1], ids=["blocking", "aio"])
def test_every_member_is_explained(name: str, flavour: int) -> None:
    """Every public method and property is spoken of, beyond its signature."""
    explained = {re.split(r"[(\s]", span)[0].rpartition(".")[2] for span in spans(PAGE)}
    names = [member.name for member in members(PAIRS[name][flavour])]
    assert [each for each in names if each not in explained] == []


def test_what_is_not_for_applications_exists() -> None:
    """What was renamed or hidden is taken off the list."""
    gone = [
        each
        for each in hidden()
        if not any(hasattr(kind, each.split(".")[1]) for kind in PAIRS[each.split(".")[0]])
    ]
    assert gone == []


def test_parameters_named_on_the_page_exist() -> None:
    """Where the text writes `name=`, a public call has such a parameter."""
    known = {
        parameter
        for kinds in PAIRS.values()
        for kind in kinds
        for _, method in inspect.getmembers(kind, inspect.isfunction)
        for parameter in inspect.signature(method).parameters
    } | set(inspect.signature(fencehold.connect).parameters)
    named = {found for span in spans(PAGE) for found in re.findall(r"\b(\w+)=", span)}
    assert named
    assert sorted(named - known) == []


@pytest.mark.parametrize("kind", RECORDS.values(), ids=RECORDS)
def test_records_say_what_their_fields_mean(kind: type) -> None:
    """Fields whose meaning is not in their name and type are explained."""
    text = prose(PAGE)
    documented = re.findall(r"^    (\w+): .*\n    \"\"\"", inspect.getsource(kind), re.MULTILINE)
    assert [field for field in documented if f"`{field}`" not in text] == []
