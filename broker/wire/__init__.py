"""The Kafka wire protocol: headers, entities, versions, frames.

`api_keys` is the one table of APIs and versions, `header` parses what every request
starts with, `codec` turns bodies into entities and back, `controller` declares the
four controller requests that kio lacks, `hot` encodes the two hottest answers.
"""
