"""Published figures beside ours; the settings of each paper stand in a TOML file here."""
