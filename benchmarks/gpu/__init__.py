"""What a GPU does with this library, measured in ten-minute commands that go on: `make gpu`."""
