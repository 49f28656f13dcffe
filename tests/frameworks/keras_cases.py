"""Keras on torch, with a RingLoader where torch's loader would be."""

import keras
import pytest
import torch
from framework_data import LOADERS, Line

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


# Keras leaves some batches to the garbage collector, more than there are slots.
@pytest.mark.filterwarnings("ignore:RingLoader. . of . slots are still looked at")
def test_a_fit_ends_with_the_numbers_of_torchs_loader():
    assert keras.backend.backend() == "torch"
    results = {}
    for name, Loader in LOADERS.items():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
        torch.manual_seed(2)
        train = Loader(Line(), batch_size=4, shuffle=True, num_workers=2)
        validate = Loader(Line(9), batch_size=4, num_workers=2)
        history = model.fit(train, validation_data=validate, epochs=2, shuffle=False, verbose=0).history
        results[name] = history, [weight.tolist() for weight in model.get_weights()]
        predicted = model.predict(validate, verbose=0)
        assert predicted.shape == (9, 1)
    assert len(results["ours"][0]["val_loss"]) == 2
    assert results["ours"] == results["theirs"]
