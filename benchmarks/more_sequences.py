"""Networks on sequences, points and tables in PyTorch that no other table of the benchmarks shows."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.more_vision import PreNormLayer


class CausalConv(nn.Module):
    """A dilated convolution that sees the past only."""

    def __init__(self, channels_in: int, channels: int, kernel: int, dilation: int):
        super().__init__()
        self.past = (kernel - 1) * dilation
        self.conv = nn.Conv1d(channels_in, channels, kernel, dilation=dilation)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(functional.pad(x, (self.past, 0)))
        return out


class WaveNet(nn.Module):
    """Gated dilated convolutions with skips. Source: van den Oord et al. 2016, figure 4."""

    def __init__(self, channels: int = 32, skip: int = 64, layers: int = 8):
        super().__init__()
        self.first = CausalConv(1, channels, 2, 1)
        self.filters = nn.ModuleList(CausalConv(channels, channels, 2, 2**n) for n in range(layers))
        self.gates = nn.ModuleList(CausalConv(channels, channels, 2, 2**n) for n in range(layers))
        self.residuals = nn.ModuleList(nn.Conv1d(channels, channels, 1) for _ in range(layers))
        self.skips = nn.ModuleList(nn.Conv1d(channels, skip, 1) for _ in range(layers))
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(skip, 128, 1), nn.ReLU(), nn.Conv1d(128, 256, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        total = torch.zeros(())
        for filters, gates, residual, skip in zip(self.filters, self.gates, self.residuals, self.skips, strict=True):
            out = torch.tanh(filters(x)) * torch.sigmoid(gates(x))
            total = total + skip(out)
            x = x + residual(out)
        result: Tensor = self.last(total)
        return result


class TCN(nn.Module):
    """Residual blocks of two dilated causal convolutions. Source: Bai, Kolter, Koltun 2018, figure 1."""

    def __init__(self, channels_in: int = 16, channels: int = 64, kernel: int = 3, layers: int = 4):
        super().__init__()
        sizes = [channels_in] + [channels] * layers
        self.first = nn.ModuleList(CausalConv(a, channels, kernel, 2**n) for n, a in enumerate(sizes[:-1]))
        self.second = nn.ModuleList(CausalConv(channels, channels, kernel, 2**n) for n in range(layers))
        self.widen = nn.Conv1d(channels_in, channels, 1)
        self.classify = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        for n, (first, second) in enumerate(zip(self.first, self.second, strict=True)):
            out = torch.relu(second(torch.relu(first(x))))
            x = torch.relu(out + (self.widen(x) if n == 0 else x))
        result: Tensor = self.classify(x[:, :, -1])
        return result


class CausalLayer(PreNormLayer):
    """A pre-norm layer whose tokens see those before them."""

    def attend(self, x: Tensor) -> Tensor:
        query, key, value = (self.split_heads(layer(x)) for layer in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        out: Tensor = self.project(mixed.transpose(1, 2).reshape(x.shape))
        return out


class GPT(nn.Module):
    """Token and position embeddings, causal layers, the head of the last token. Source: Radford et al. 2019."""

    def __init__(self, hidden: int = 512, heads: int = 8, layers: int = 4, vocabulary: int = 4000, tokens: int = 64):
        super().__init__()
        self.embed, self.position = nn.Embedding(vocabulary, hidden), nn.Embedding(tokens, hidden)
        self.layers = nn.Sequential(*(CausalLayer(hidden, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        x = self.norm(self.layers(x))
        return x[:, -1] @ self.embed.weight.T


class CachedLayer(PreNormLayer):
    """One new token beside the keys and values of those before it."""

    def decode(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inner = self.norm1(x)
        query, key, value = (self.split_heads(layer(inner)) for layer in (self.query, self.key, self.value))
        keys, values = torch.cat((keys, key), 2), torch.cat((values, value), 2)
        mixed = functional.scaled_dot_product_attention(query, keys, values)
        x = x + self.project(mixed.transpose(1, 2).reshape(x.shape))
        out: Tensor = x + self.narrow(functional.gelu(self.widen(self.norm2(x)), approximate="tanh"))
        return out, keys, values


class Decoder(nn.Module):
    """A step of decoding through several layers; caches come in and go out."""

    def __init__(self, hidden: int = 512, heads: int = 8, layers: int = 4):
        super().__init__()
        self.layers = nn.ModuleList(CachedLayer(hidden, heads) for _ in range(layers))

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        new_keys, new_values = [], []
        for n, layer in enumerate(self.layers):
            x, k, v = layer.decode(x, keys[n], values[n])  # type: ignore[operator]
            new_keys.append(k)
            new_values.append(v)
        return x, torch.stack(new_keys), torch.stack(new_values)


class Recurrent(nn.Module):
    """A recurrent network's last state, classified."""

    def __init__(self, kind: type[nn.RNNBase], bidirectional: bool):
        super().__init__()
        self.rnn = kind(64, 128, num_layers=2, batch_first=True, bidirectional=bidirectional)
        self.classify = nn.Linear(256 if bidirectional else 128, 20)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classify(self.rnn(x)[0][:, -1])
        return out


def lstm() -> nn.Module:
    return Recurrent(nn.LSTM, bidirectional=True)


def gru() -> nn.Module:
    return Recurrent(nn.GRU, bidirectional=False)


class DLRM(nn.Module):
    """Embeddings, two MLPs and products of all pairs of features. Source: Naumov et al. 2019."""

    def __init__(self, tables: int = 8, rows: int = 1000, width: int = 64):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 256), nn.ReLU(), nn.Linear(256, 1), nn.Sigmoid())
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1), persistent=False)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        x = self.bottom(dense)
        features = torch.stack([x, *(table(sparse[:, n]) for n, table in enumerate(self.tables))], 1)
        products = features @ features.transpose(1, 2)
        crossed = products[:, self.pairs[0], self.pairs[1]]
        out: Tensor = self.top(torch.cat((x, crossed), 1))
        return out


class PointNet(nn.Module):
    """The same layers for each point, then the largest over all. Source: Qi et al. 2016, figure 2."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (3, 64, 64, 64, 128, 1024)
        self.points = nn.Sequential(
            *(
                layer
                for a, b in zip(sizes, sizes[1:], strict=False)
                for layer in (nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())
            )
        )
        self.classify = nn.Sequential(nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 40))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classify(self.points(x).amax(2))
        return functional.log_softmax(out, -1)
