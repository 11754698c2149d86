"""ML-KEM-768 beside X25519 as docs/protocol.md has it, on a pure Python ML-KEM that has no code in common with ours."""

from kyber_py.ml_kem import ML_KEM_768
from noise.state import SymmetricState

NAME = b"Noise_NNhfs+psk0_25519+MLKEM768_AESGCM_SHA256"
IN_PREFIX = 0x40
TAG = 16
KEY, CIPHERTEXT = 1184, 1088


def add_ml_kem(connection, role, key=None, spoil=lambda ciphertext: ciphertext):
    """Lets a Noise connection of NAME put what ML-KEM needs in front of its payloads, and take the peer's. After
    members.prove, if both are needed. `key`: what is sent as the encapsulation key; `spoil`: makes another
    ciphertext."""
    symmetric = connection.noise_protocol.handshake_state.symmetric_state
    seal_payload, unseal_payload = symmetric.encrypt_and_hash, symmetric.decrypt_and_hash
    own_key, private_key = ML_KEM_768.keygen()
    peers = {}

    def encrypt_and_hash(payload):
        if role == "initiator":
            part = SymmetricState.encrypt_and_hash(symmetric, key or own_key)
        else:
            shared, ciphertext = ML_KEM_768.encaps(peers["key"])
            part = SymmetricState.encrypt_and_hash(symmetric, spoil(ciphertext))
            symmetric.mix_key(shared)
        return part + seal_payload(payload)

    def decrypt_and_hash(sealed):
        size = (KEY if role == "responder" else CIPHERTEXT) + TAG
        part = SymmetricState.decrypt_and_hash(symmetric, sealed[:size])
        if role == "responder":
            peers["key"] = part
        else:
            symmetric.mix_key(ML_KEM_768.decaps(private_key, part))
        return unseal_payload(sealed[size:])

    symmetric.encrypt_and_hash, symmetric.decrypt_and_hash = encrypt_and_hash, decrypt_and_hash
    return connection
