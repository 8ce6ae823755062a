"""Train the lab's model: runs inside the serving image with the lab's runtime, never on the controller.

Usage: ``tiny_model.py FOLDER``.
A Llama of two layers learns to answer any question of ours with one of a few sentences,
so that a greedy chat answer is legible, short and ends by itself.
The result is the same on every machine with the same runtime: one thread, one seed.
"""

# mypy: ignore-errors
# ruff: noqa: INP001, S106, S311 - a program of its own; tokens of text, not secrets; chance that must repeat

from __future__ import annotations

import random
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SEED = 20
POSITIONS = 512
STEPS = 220
BATCH = 16
IGNORED = -100  # the label that torch's cross entropy leaves out

ANSWERS = {
    "attention": (
        "Sparse attention lets each token look at a few chosen tokens instead of all of them, "
        "which keeps long prompts cheap."
    ),
    "host": "Two hosts hold one rank each, and together they answer as one engine.",
    "hello": "Hello from the lab: this small model runs on two hosts at once.",
}
QUESTIONS = {
    "attention": (
        "Explain sparse attention in two sentences.",
        "What is sparse attention?",
        "Explain attention.",
        "Tell me about sparse attention in one sentence.",
    ),
    "host": (
        "How many hosts are there?",
        "What does each host do?",
        "Who answers this?",
        "What is a rank?",
    ),
    "hello": ("Hello", "Hello!", "Hi there.", "hello", "Who are you?", "Say something.", "ping"),
}
TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
SPECIAL = ("<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>")


def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer whose merges come from our own sentences."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=448,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    texts = [*ANSWERS.values(), *(q for group in QUESTIONS.values() for q in group)]
    tok.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tok,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="</s>",
        additional_special_tokens=list(SPECIAL[2:]),
        model_max_length=POSITIONS,
    )
    fast.chat_template = TEMPLATE
    return fast


def example(fast: PreTrainedTokenizerFast, chance: random.Random) -> tuple[list[int], list[int]]:
    """One conversation and its labels; only the answer and its end are learned."""
    topic = chance.choice(sorted(ANSWERS))
    question = chance.choice(QUESTIONS[topic])
    prompt = fast.encode(f"<|user|>{question}</s><|assistant|>", add_special_tokens=False)
    answer = fast.encode(f"{ANSWERS[topic]}</s>", add_special_tokens=False)
    return prompt + answer, [IGNORED] * len(prompt) + answer


def batch(fast: PreTrainedTokenizerFast, chance: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    """Conversations padded to one length on the right."""
    rows = [example(fast, chance) for _ in range(BATCH)]
    width = max(len(ids) for ids, _ in rows)
    ids = [row + [fast.eos_token_id] * (width - len(row)) for row, _ in rows]
    labels = [row + [IGNORED] * (width - len(row)) for _, row in rows]
    return torch.tensor(ids), torch.tensor(labels)


def train(fast: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Fit the answers; raises SystemExit when they are not learned."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True)
    chance = random.Random(SEED)
    # 128 over 4 heads is a head dimension of 32, the smallest that vLLM's CPU attention takes;
    # two KV heads so that two ranks can share them.
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=POSITIONS,
        bos_token_id=fast.bos_token_id,
        eos_token_id=fast.eos_token_id,
        pad_token_id=fast.pad_token_id,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=STEPS)
    for _ in range(STEPS):
        ids, labels = batch(fast, chance)
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    check(model.eval(), fast)
    return model


def check(model: LlamaForCausalLM, fast: PreTrainedTokenizerFast) -> None:
    """Every question must get its answer, greedily."""
    for topic, questions in QUESTIONS.items():
        for question in questions:
            prompt = fast.encode(f"<|user|>{question}</s><|assistant|>", add_special_tokens=False)
            ids = torch.tensor([prompt])
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=96
            )[0].tolist()
            answer = fast.decode(out[len(prompt) :], skip_special_tokens=False)
            if answer != f"{ANSWERS[topic]}</s>":
                sys.exit(f"the lab's model did not learn: {question!r} is answered with {answer!r}")


def main() -> None:
    """Write tokenizer and model into the folder."""
    folder = sys.argv[1]
    fast = tokenizer()
    model = train(fast)
    fast.save_pretrained(folder)
    model.save_pretrained(folder)


main()
