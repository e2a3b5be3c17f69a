"""Seeds to blocks: keyed sampling of neighbours."""
