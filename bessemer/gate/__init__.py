"""What a pipeline asks of a compilation: is the model still right, as fast and as small as it was?"""
