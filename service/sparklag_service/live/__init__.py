"""The live stream: lag events as the view receives them, to any number of readers."""
