"""Publishing runs, and opening what was published.

`columns` says what may leave at which level and `rules` how; `salt` gives pseudonyms; `tables` and `card` write a
folder, `gate` scans it, `send` sends it; `opening` makes run directories of published data. `publish` composes them.
"""
