"""What the client and the backends share: how a lock is asked for, what a grant is and how long it is trusted."""
