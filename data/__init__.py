"""Data sets: `registry` is the door (prepare, verify, open, smoke samples); one file per data set beside it.

spec      what a model needs to know about a task, and what a user asked for
batching  in-memory splits; batches as pure functions of (seed, step)
store     the format on disk: a TensorFlow Datasets folder in array_record files, with a manifest
parallel  jobs over processes, results in order
listops   Long Range Arena ListOps, generated here
"""
