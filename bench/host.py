"""The facts about a machine without which a figure says nothing."""

import os
import platform


def facts() -> dict[str, str | int]:
    """What is written beside every result."""
    return {
        # The cores we may use, which in a container are fewer than the cores there are.
        "cores": len(os.sched_getaffinity(0)),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
    }
