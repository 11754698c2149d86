"""The results of every start, kept in a file for each part, so that a benchmark that was stopped can be taken up
again."""

import dataclasses
import json


class Samples:
    """`turns` is a list of {variant's name: {"BENCHMARK SIZE": {quantity: value}}}; a variant that failed is missing.
    `others` counts the processes of others that ran before each start."""

    def __init__(self, folder, part, settings, resume):
        """The settings are what else the results depend on; those of other settings are not taken again."""
        self.part = part
        self._file = folder / f"{part.name}.json"
        described = {**dataclasses.asdict(part), **settings}
        del described["most_turns"]
        self._identity = json.loads(json.dumps(described))
        self.turns, self.others = [], []
        if resume and self._file.exists():
            kept = json.loads(self._file.read_text())
            if kept["part"] == self._identity:
                self.turns, self.others = kept["turns"], kept["others"]

    def add(self, turn, others=()):
        self.turns.append(turn)
        self.others += others
        partly = self._file.with_suffix(".new")
        partly.write_text(json.dumps({"part": self._identity, "turns": self.turns, "others": self.others}) + "\n")
        partly.replace(self._file)

    def keys(self):
        return list(dict.fromkeys(key for turn in self.turns for results in turn.values() for key in results))

    def values(self, variant, key, quantity):
        """One value a turn; None where the variant has none."""
        return [turn.get(variant, {}).get(key, {}).get(quantity) for turn in self.turns]
