"""The live stream: sends lag events to any number of readers as the view receives them."""
