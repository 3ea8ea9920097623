"""`postgresql+advisory://`: advisory locks of one session, which the server releases when its connection ends."""

from fencehold.backends.advisory.store import SCHEME, AdvisoryStore
from fencehold.backends.lease.backend import LeaseBackend
from fencehold.backends.port import Ask, Backend, Settings
from fencehold.drivers.postgres.address import PostgresAddress


class Advisory(LeaseBackend):
    """As for any store, but all holds can be lost together, and that is notified at once."""

    def __init__(self, store: AdvisoryStore, settings: Settings) -> None:
        super().__init__(store, settings)
        self._advisory = store
        store.on_gone = self._on_gone

    def withdraw_later(self, ask: Ask, ttl: float) -> None:
        # Nothing here expires by itself: what is withdrawn is withdrawn now. When the client is closed, all is.
        if self._is_open:
            self._advisory.drop(ask)

    def _on_gone(self, token: str, reason: str) -> None:
        for lease in self.keeper.leases:
            if not token or lease.ask.token == token:
                self.keeper.leases.lose(lease, reason)


def backend(url: str, settings: Settings) -> Backend:
    """The backend at a URL. Nothing is connected to yet.

    Raises:
        UsageError: the URL cannot be read; the message says what to write instead.
    """
    return Advisory(AdvisoryStore(PostgresAddress.parse(url, SCHEME), settings), settings)
