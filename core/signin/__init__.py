"""Sign-in of people at other services, whose tools then act as them."""
