"""SASL as messages and formulas, for brokers and clients: JAAS, SCRAM, OAUTHBEARER."""
