"""The names of the files that the debug executor dumps."""

GRAPH_DUMP_FILE_NAME = "_tvmdbg_graph_dump.json"
CHROME_TRACE_FILE_NAME = "_tvmdbg_execution_trace.json"
TENSOR_FILE_NAME = "output_tensors.params"
