"""Data sets: `registry` names them, `prepared` makes, verifies and opens them; one file per data set beside it.

spec, examples            what a user asks for, what a model needs to know, what a data set makes
prepared, store, folders  folders that appear at once: TensorFlow Datasets in array_record files, written as a stream
manifest                  what must be in such a folder, and where it came from
splits, batching          records in memory or on disk; batches as pure functions of (seed, step)
sources, download,        published files: found in the user's folder or downloaded with resume; archives as streams
archives, lock
vocabulary, byte_pairs,   characters and GPT-2 byte pairs as ids; a text as windows
windows
wav, spool, moments,      recordings: reading, sorting on disk, exact statistics, a stratified split
stratified, clips
permutation               the published random split without PyTorch
parallel                  jobs over processes, results in order
guesses                   what a model has to beat

listops, text, retrieval, pathfinder, images, mnist, speech_commands, fsdd, shakespeare, tinystories, probes
"""
