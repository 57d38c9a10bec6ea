"""The broker's configuration: Kafka's keys, Kafka's file format, checked at start-up.

``config[NUM_IO_THREADS]`` is the value of one key. The keys are defined in modules by
area (`network_keys`, `storage_keys`, ...) and in `broker.tls.keys`, and are re-exported
here.
"""

from broker.config.admission_keys import *  # noqa: F403 - each module's keys, and only they
from broker.config.authorization_keys import *  # noqa: F403 - as above
from broker.config.broker_config import KEYS as KEYS
from broker.config.broker_config import BrokerConfig as BrokerConfig
from broker.config.broker_config import find_key as find_key
from broker.config.cluster_keys import *  # noqa: F403 - as above
from broker.config.doorkeeper_keys import *  # noqa: F403 - as above
from broker.config.listeners import Listener as Listener
from broker.config.network_keys import *  # noqa: F403 - as above
from broker.config.properties import parse_properties as parse_properties
from broker.config.sasl_listener_keys import *  # noqa: F403 - as above
from broker.config.storage_keys import *  # noqa: F403 - as above
from broker.protocol.config_key import ConfigType as ConfigType
from broker.protocol.config_key import Key as Key
from broker.tls.keys import *  # noqa: F403 - as above
