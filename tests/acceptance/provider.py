"""A fake payment provider. It remembers every effect in its own SQLite file, and never refuses a second one."""

from __future__ import annotations

import sqlite3
from pathlib import Path


class AnswerLost(Exception):
    """The effect may have happened; nobody said so."""


class Provider:
    def __init__(self, path: Path | str):
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("CREATE TABLE IF NOT EXISTS effects (id INTEGER PRIMARY KEY, key TEXT, amount INTEGER)")

    def pay(self, key: str, amount: int, *, lose_answer: bool = False) -> str:
        cursor = self._db.execute("INSERT INTO effects (key, amount) VALUES (?, ?)", (key, amount))
        if lose_answer:
            raise AnswerLost
        return f"pay_{cursor.lastrowid}"

    def lookup(self, key: str) -> str | None:
        row = self._db.execute("SELECT id FROM effects WHERE key = ? ORDER BY id", (key,)).fetchone()
        return f"pay_{row[0]}" if row else None

    def effects(self, key_prefix: str) -> int:
        # substr, not LIKE: keys may hold '_' and '%'.
        query = "SELECT COUNT(*) FROM effects WHERE substr(key, 1, ?) = ?"
        return self._db.execute(query, (len(key_prefix), key_prefix)).fetchone()[0]

    def close(self) -> None:
        self._db.close()
