def main() -> None:
    print("torchjit")
