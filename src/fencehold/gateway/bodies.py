"""Bodies of requests: JSON objects, bounded in bytes and in seconds."""

import asyncio
import json
from collections.abc import AsyncIterable
from typing import Any

from fencehold.errors import UsageError

SECONDS_MAX = 10.0


async def json_object(chunks: AsyncIterable[bytes], bytes_max: int) -> dict[str, Any]:
    """What a client sends, read to its end. No body is an empty object.

    Raises:
        UsageError: it is too long, too slow, or not a JSON object.
    """
    data = bytearray()
    try:
        async with asyncio.timeout(SECONDS_MAX):
            async for chunk in chunks:
                data += chunk
                if len(data) > bytes_max:
                    raise UsageError(f"a body has at most {bytes_max} bytes")
    except TimeoutError:
        raise UsageError(f"a body is sent within {SECONDS_MAX:g} s") from None
    try:
        said = json.loads(data or b"{}")
        if b"\\ud" in data.lower():
            # Half a surrogate pair can be written in JSON, but is not text: nothing could pass it on.
            json.dumps(said, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UsageError("the body has a text with half of a surrogate pair, which is not text") from None
    except (ValueError, RecursionError):
        raise UsageError("the body is not JSON") from None
    if not isinstance(said, dict):
        raise UsageError("the body is a JSON object")
    return said
