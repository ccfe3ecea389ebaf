"""Files on a local disk or in a bucket, behind one class: `Storage`.

`local_files` and `object_files` offer it the same operations, each on its kind of storage. It may
import `config`, `process` and the errors. Start with `storage`.
"""
