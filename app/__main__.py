"""``python -m app``: serve the API until SIGINT or SIGTERM."""

from bessemer.quick_imports import quick_imports

if __name__ == "__main__":
    with quick_imports():
        from app.program import main

    main()
