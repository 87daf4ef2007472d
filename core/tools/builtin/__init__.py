"""Tools that come with Parley."""
