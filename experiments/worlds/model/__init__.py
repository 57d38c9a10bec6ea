"""The model world: the broker's planes on an event heap."""
